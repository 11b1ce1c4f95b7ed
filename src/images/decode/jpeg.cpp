#include <csetjmp>
#include <cstdio>
// jpeglib.h needs what cstdio declares.
#include <jerror.h>
#include <jpeglib.h>

#include "images/decode/libraries.h"

namespace llorch::images::decode {
namespace {

// A progressive image of a camera has about ten. Each costs a pass over the whole image, however small its bytes are.
constexpr int kScansMax = 64;
// Above the pixels' own: the coefficients of a progressive image, 6 bytes per pixel, and tables.
constexpr long kTablesBytesMax = 64L << 20;

struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf on_failure{};
};

[[noreturn]] void leave(j_common_ptr info) { std::longjmp(static_cast<Decoder*>(info->client_data)->on_failure, 1); }

// Warnings of missing data are failures: what the library makes up instead is no image. Others are stray bytes.
void on_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE)) leave(info);
}
void on_output(j_common_ptr) {}
void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kScansMax) leave(info);
}

// Left by longjmp from inside the library: nothing here has a destructor.
bool read_jpeg(Decoder& decoder, std::span<const std::byte> file, const Size& size, std::uint8_t* pixels) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.on_failure) != 0) return false;
  jpeg_create_decompress(&info);
  info.progress = &decoder.progress;
  info.mem->max_memory_to_use = kTablesBytesMax + static_cast<long>(6 * size.area());
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  if (jpeg_read_header(&info, TRUE) != JPEG_HEADER_OK) return false;
  if (info.image_width != size.width || info.image_height != size.height) return false;
  info.out_color_space = JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels + std::size_t{3} * size.width * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

bool decode_jpeg(std::span<const std::byte> file, const Header& header, std::span<std::uint8_t> pixels) {
  Decoder decoder;
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.info.client_data = &decoder;
  decoder.errors.error_exit = leave;
  decoder.errors.emit_message = on_message;
  decoder.errors.output_message = on_output;
  decoder.progress.progress_monitor = on_progress;
  const bool done = read_jpeg(decoder, file, header.stored, pixels.data());
  jpeg_destroy_decompress(&decoder.info);
  return done;
}

}  // namespace llorch::images::decode
