#include "guest.h"
const struct test_group group_semantics = {NULL, 0};
