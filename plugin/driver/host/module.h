// plugin/driver/host/module.h: a loaded kernel image and its functions.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "driver/host/handles.h"
#include "driver/host/limits.h"
#include "host_image.h"

namespace jge::host {

struct Context;
struct Module;

struct Function : Handle<Kind::kFunction> {
  Module* module = nullptr;
  const JgeHostKernel* kernel = nullptr;
  int max_dynamic_shared = kMaxSharedBytes;
  int carveout = -1;  // percent
};

struct Module : Handle<Kind::kModule>, std::enable_shared_from_this<Module> {
  ~Module();
  void* handle = nullptr;  // of dlopen
  std::string image;       // its bytes, for source lines, if it is a checked one
  Context* context = nullptr;
  const JgeHostImage* table = nullptr;
  std::mutex running;                                  // held by launches of a checked image
  std::unordered_map<const void*, std::string> lines;  // of its code, once looked up; by `running`
  std::deque<Function> functions;
  std::shared_ptr<Module> self;  // until cuModuleUnload
};

}  // namespace jge::host
