// include/host/bits/basic_string.h: as shared_ptr_base.h beside it, for libstdc++ 13 and later.
#pragma push_macro("__noinline__")
#undef __noinline__
#include_next <bits/basic_string.h>
#pragma pop_macro("__noinline__")
