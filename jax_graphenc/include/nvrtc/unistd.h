#include <jge_std.h>
