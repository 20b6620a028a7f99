/* first form: grows below */
__attribute__((visibility("default"))) int nvmlInit_v2(void) { return 0; }
