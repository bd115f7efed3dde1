#include "guest.h"
const struct test_group group_hooks = {NULL, 0};
