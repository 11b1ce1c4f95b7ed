#pragma once
// One function per library, so that each library's header is seen by one file.
#include "images/decode/decode.h"

namespace llorch::images::decode {

// Fill `pixels`, whose size is that of `header.stored`. False: the file is not what its header says, or is damaged.
bool decode_png(std::span<const std::byte> file, const Header& header, std::span<std::uint8_t> pixels);
bool decode_jpeg(std::span<const std::byte> file, const Header& header, std::span<std::uint8_t> pixels);

}  // namespace llorch::images::decode
