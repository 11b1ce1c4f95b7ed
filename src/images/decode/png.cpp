#include <png.h>

#include <algorithm>
#include <cstring>

#include "images/decode/libraries.h"

namespace llorch::images::decode {
namespace {

// Of ancillary chunks nothing is kept, so this bounds what one may make the library hold.
constexpr png_alloc_size_t kChunkBytesMax = 1U << 20;

struct PngBytes {
  std::span<const std::byte> left;
};

void read_bytes(png_structp png, png_bytep out, std::size_t count) {
  auto& source = *static_cast<PngBytes*>(png_get_io_ptr(png));
  if (source.left.size() < count) png_error(png, "the file ends");
  std::memcpy(out, source.left.data(), count);
  source.left = source.left.subspan(count);
}

[[noreturn]] void on_error(png_structp png, png_const_charp) { png_longjmp(png, 1); }
void on_warning(png_structp, png_const_charp) {}

void convert_to_rgb(png_structp png) {
  png_set_strip_16(png);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_palette_to_rgb(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
}

// Left by longjmp from inside the library: nothing here has a destructor.
bool read_png(png_structp png, png_infop info, const Size& size, png_bytepp rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_user_limits(png, size.width, size.height);
  png_set_chunk_cache_max(png, 1);
  png_set_chunk_malloc_max(png, kChunkBytesMax);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(png, info);
  if (png_get_image_width(png, info) != size.width || png_get_image_height(png, info) != size.height) return false;
  convert_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != std::size_t{3} * size.width) return false;
  png_read_image(png, rows);
  return true;
}

}  // namespace

bool decode_png(std::span<const std::byte> file, const Header& header, std::span<std::uint8_t> pixels) {
  PngBytes source{file};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, on_error, on_warning);
  if (png == nullptr) return false;
  png_infop info = png_create_info_struct(png);
  std::vector<png_bytep> rows(header.stored.height);
  for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = pixels.data() + y * 3 * header.stored.width;
  png_set_read_fn(png, &source, read_bytes);
  const bool done = info != nullptr && read_png(png, info, header.stored, rows.data());
  png_destroy_read_struct(&png, &info, nullptr);
  return done;
}

}  // namespace llorch::images::decode
