// include/host/bits/shared_ptr_base.h: libstdc++'s header, which <memory> and many others include.
// It writes __attribute__((__noinline__)), and CUDA's __noinline__ is a macro.
#pragma push_macro("__noinline__")
#undef __noinline__
#include_next <bits/shared_ptr_base.h>
#pragma pop_macro("__noinline__")
