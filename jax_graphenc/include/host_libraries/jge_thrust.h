// include/host_libraries/jge_thrust.h: Thrust's containers, as declarations of host functions name
// them.
#pragma once
namespace thrust {
template <class T>
struct device_ptr {};
template <class T>
struct device_reference {};
template <class T, class A = void>
struct device_vector {};
template <class T, class A = void>
struct host_vector {};
template <class T>
struct plus {};
template <class T>
struct minus {};
template <class T>
struct multiplies {};
template <class T>
struct maximum {};
template <class T>
struct minimum {};
template <class T>
struct less {};
template <class T>
struct greater {};
template <class T>
struct equal_to {};
template <class T>
struct counting_iterator {};
}  // namespace thrust
