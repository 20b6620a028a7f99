/* default.json as a C string, so that the library needs no second file. */
__asm__(".section .rodata\n"
        ".global fake_nvml_defaults\n"
        ".hidden fake_nvml_defaults\n"
        "fake_nvml_defaults:\n"
        ".incbin \"default.json\"\n"
        ".byte 0\n"
        ".previous\n");
