// plugin/driver/host/image.h: kernel images before and while they are loaded.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "driver/host/module.h"

namespace jge::host {

// The size of an ELF image, by its own headers; nullopt where it is none of this machine's. Reads
// as far as the headers say. `bytes` begins with ELF's magic number.
std::optional<std::size_t> image_size(const void* bytes);

// Gives an image to the dynamic loader; null with the reason in `why` where that fails.
std::shared_ptr<Module> open_image(const void* bytes, std::size_t size, std::string& why);

}  // namespace jge::host
