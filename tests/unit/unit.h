/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/unit.h - cmocka with the headers that it wants before itself.
 */
#ifndef PREZERO_TESTS_UNIT_H
#define PREZERO_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
