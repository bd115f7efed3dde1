/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * model/goal.c - the words for what is short.
 *
 * Guarantees: the words are part of the interface and never change.
 */
#include "model/goal.h"

const char *shortage_name(enum shortage why)
{
	switch (why) {
	case SHORT_NONE:
		return "none";
	case SHORT_NO_CLASS:
		return "class";
	case SHORT_NO_NODE:
		return "node";
	case SHORT_NOT_MULTIPLE:
		return "multiple";
	case SHORT_MACHINE:
		return "machine";
	case SHORT_PAGES:
		return "pages";
	case SHORT_LEAVE_FREE:
		return "leave_free";
	case SHORT_FLOOR:
		return "floor";
	case SHORT_CGROUP:
		return "cgroup";
	case SHORT_THP:
		return "thp";
	case SHORT_LIMIT:
		return "limit";
	}
	return "none";
}
