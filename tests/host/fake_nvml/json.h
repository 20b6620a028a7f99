/* A small JSON reader: whole document in memory, values never change. */
#ifndef FAKE_NVML_JSON_H
#define FAKE_NVML_JSON_H

#include <stdbool.h>
#include <stddef.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    double number;      /* JSON_NUMBER, and JSON_BOOL as 0 or 1 */
    char *text;         /* JSON_STRING, UTF-8 */
    char *key;          /* name of this value, if its parent is an object */
    struct json *first; /* children of an array or object */
    struct json *next;  /* next child of the same parent */
};

/* Reads one document. On an error returns NULL and sets *error_line (from 1). Release with json_free. */
struct json *json_parse(const char *text, int *error_line);
void json_free(struct json *value);

/* The member of an object, NULL if there is none (or if `object` is NULL or no object). */
const struct json *json_member(const struct json *object, const char *key);
/* The item of an array, NULL past its end (or if `array` is NULL or no array). */
const struct json *json_item(const struct json *array, size_t index);
size_t json_length(const struct json *array);
bool json_is(const struct json *value, enum json_type type);

#endif
