/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/text.h - what stands in the kernel's small text files.
 *
 * Reads texts only; outputs are written only on success. -ENOENT: not there, -EINVAL: not a value.
 */
#ifndef PREZERO_HOST_TEXT_H
#define PREZERO_HOST_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/* The value on the line "NAME: VALUE", or "Node 3 NAME: VALUE". -EFBIG when it does not fit. */
MUST_CHECK int text_field(const char *text, const char *name, char *buf, size_t buf_bytes);
/* The same where the value is "N kB". */
MUST_CHECK int text_field_kb(const char *text, const char *name, uint64_t *ret_bytes);
/* The chosen word of "one [two] three". */
MUST_CHECK int text_choice(const char *text, char *buf, size_t buf_bytes);
/* Undoes the octal escapes of mountinfo, in place. */
void text_unescape(char *text);

#endif
