#include "guest.h"
const struct test_group group_figures = {NULL, 0};
