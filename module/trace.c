// SPDX-License-Identifier: GPL-2.0-only
/* The tracepoints' bodies, made from trace.h. */
#define CREATE_TRACE_POINTS
#include "trace.h"
