#include "json.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    int line;
};

static struct json *read_value(struct reader *in, int depth);

static void skip_space(struct reader *in)
{
    for (; *in->at == ' ' || *in->at == '\t' || *in->at == '\r' || *in->at == '\n'; in->at++)
        in->line += *in->at == '\n';
}

static bool accept(struct reader *in, char wanted)
{
    skip_space(in);
    if (*in->at != wanted)
        return false;
    in->at++;
    return true;
}

static struct json *new_value(enum json_type type)
{
    struct json *value = calloc(1, sizeof *value);
    if (value)
        value->type = type;
    return value;
}

/* The code point of \uXXXX as UTF-8. Surrogate pairs are not needed in a test's configuration. */
static size_t put_utf8(char *to, unsigned code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xC0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    to[0] = (char)(0xE0 | code >> 12);
    to[1] = (char)(0x80 | (code >> 6 & 0x3F));
    to[2] = (char)(0x80 | (code & 0x3F));
    return 3;
}

static bool read_hex4(const char *at, unsigned *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *digit = at[i] ? strchr(digits, at[i]) : NULL;
        if (!digit)
            return false;
        *code = *code * 16 + (unsigned)((digit - digits) % 16);
    }
    return true;
}

/* Called after the opening quote. */
static char *read_text(struct reader *in)
{
    static const char escapes[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const char *end = in->at;
    while (*end && *end != '"' && *end != '\n')
        end += end[0] == '\\' && end[1] ? 2 : 1;
    if (*end != '"')
        return NULL;
    char *text = malloc((size_t)(end - in->at) + 1); /* escapes only ever shrink */
    size_t length = 0;
    while (text && in->at < end) {
        char c = *in->at++;
        if (c != '\\') {
            text[length++] = c;
            continue;
        }
        c = *in->at++;
        unsigned code;
        const char *escape = strchr(escapes, c);
        if (escape) {
            text[length++] = meanings[escape - escapes];
        } else if (c == 'u' && read_hex4(in->at, &code)) {
            length += put_utf8(text + length, code);
            in->at += 4;
        } else {
            free(text);
            return NULL;
        }
    }
    if (text) {
        text[length] = '\0';
        in->at = end + 1;
    }
    return text;
}

static struct json *read_word(struct reader *in, const char *word, enum json_type type, double number)
{
    size_t length = strlen(word);
    if (strncmp(in->at, word, length) != 0)
        return NULL;
    in->at += length;
    struct json *value = new_value(type);
    if (value)
        value->number = number;
    return value;
}

/* Children of an array or object, after its opening bracket. */
static bool read_children(struct reader *in, struct json *parent, char closing, int depth)
{
    struct json **link = &parent->first;
    if (accept(in, closing))
        return true;
    do {
        char *key = NULL;
        if (parent->type == JSON_OBJECT) {
            if (!accept(in, '"') || !(key = read_text(in)))
                return false;
            if (!accept(in, ':')) {
                free(key);
                return false;
            }
        }
        struct json *child = read_value(in, depth + 1);
        if (!child) {
            free(key);
            return false;
        }
        child->key = key;
        *link = child;
        link = &child->next;
    } while (accept(in, ','));
    return accept(in, closing);
}

static struct json *read_value(struct reader *in, int depth)
{
    struct json *value = NULL;
    bool good = depth < 64;
    skip_space(in);
    if (accept(in, '{')) {
        value = new_value(JSON_OBJECT);
        good = good && value && read_children(in, value, '}', depth);
    } else if (accept(in, '[')) {
        value = new_value(JSON_ARRAY);
        good = good && value && read_children(in, value, ']', depth);
    } else if (accept(in, '"')) {
        value = new_value(JSON_STRING);
        good = value && (value->text = read_text(in)) != NULL;
    } else if (*in->at == '-' || (*in->at >= '0' && *in->at <= '9')) {
        char *end;
        value = new_value(JSON_NUMBER);
        if (value)
            value->number = strtod(in->at, &end);
        good = value && end != in->at;
        if (good)
            in->at = end;
    } else {
        value = read_word(in, "null", JSON_NULL, 0);
        value = value ? value : read_word(in, "true", JSON_BOOL, 1);
        value = value ? value : read_word(in, "false", JSON_BOOL, 0);
    }
    if (!good) {
        json_free(value);
        return NULL;
    }
    return value;
}

struct json *json_parse(const char *text, int *error_line)
{
    struct reader in = {text, 1};
    struct json *value = read_value(&in, 0);
    skip_space(&in);
    if (value && *in.at) {
        json_free(value);
        value = NULL;
    }
    *error_line = in.line;
    return value;
}

void json_free(struct json *value)
{
    while (value) {
        struct json *next = value->next;
        json_free(value->first);
        free(value->text);
        free(value->key);
        free(value);
        value = next;
    }
}

const struct json *json_member(const struct json *object, const char *key)
{
    if (!json_is(object, JSON_OBJECT))
        return NULL;
    for (const struct json *child = object->first; child; child = child->next)
        if (strcmp(child->key, key) == 0)
            return child;
    return NULL;
}

const struct json *json_item(const struct json *array, size_t index)
{
    if (!json_is(array, JSON_ARRAY))
        return NULL;
    const struct json *child = array->first;
    while (child && index-- > 0)
        child = child->next;
    return child;
}

size_t json_length(const struct json *array)
{
    size_t length = 0;
    if (json_is(array, JSON_ARRAY))
        for (const struct json *child = array->first; child; child = child->next)
            length++;
    return length;
}

bool json_is(const struct json *value, enum json_type type)
{
    return value && value->type == type;
}
