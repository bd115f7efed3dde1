#include "guest.h"
const struct test_group group_resize = {NULL, 0};
