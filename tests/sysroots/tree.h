/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/sysroots/tree.h - a directory that stands for the root of some machine.
 *
 * The form of the text is that of tests/sysroots: a line "--- PATH" and the file's content. Whatever
 * cannot be made ends the program: a test without its tree says nothing.
 */
#ifndef PREZERO_TESTS_TREE_H
#define PREZERO_TESTS_TREE_H

#include <stddef.h>

#include "base/cleanup.h"

struct tree {
	char path[48];
	int fd;
};

void tree_init(struct tree *tree);
void tree_done(struct tree *tree); /* removes everything */

/* An imagined machine: what tests/sysroots/imagine NAME prints. */
void tree_imagine(struct tree *tree, const char *name);
/* A text; paths that lead elsewhere, and what cannot be made, are left out. */
void tree_unpack(struct tree *tree, const char *text, size_t text_bytes);
void tree_put(struct tree *tree, const char *path, const char *content);
void tree_drop(struct tree *tree, const char *path); /* a file, or a directory with all below */

#endif
