#include "cli/bundle/archive.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/assert.h"

namespace llorch::cli::bundle {
namespace {

constexpr std::size_t kBlockBytes = 512;
constexpr int kGzipWindow = 15 + 16;  // the largest window; + 16: a gzip header, not zlib's

using Header = std::array<char, kBlockBytes>;

void put(Header& header, std::size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
}

// The fields of POSIX.1-2017, pax, "ustar Interchange Format".
Header ustar_header(const ArchiveFile& file, std::int64_t unix_s) {
  ASSERT(file.name.size() <= 100);
  Header header{};
  put(header, 0, file.name);
  put(header, 100, "0000600");
  put(header, 108, "0000000");
  put(header, 116, "0000000");
  put(header, 124, fmt::format("{:011o}", file.content.size()));
  put(header, 136, fmt::format("{:011o}", unix_s));
  put(header, 148, "        ");  // the checksum counts itself as blanks
  put(header, 156, "0");
  put(header, 257,
      std::string_view("ustar\0"
                       "00",
                       8));
  const unsigned sum = std::accumulate(header.begin(), header.end(), 0U,
                                       [](unsigned total, char c) { return total + static_cast<unsigned char>(c); });
  put(header, 148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  return header;
}

}  // namespace

base::Result<std::string> tar_gz(std::span<const ArchiveFile> files, std::int64_t unix_s) {
  std::string tar;
  for (const ArchiveFile& file : files) {
    const Header header = ustar_header(file, unix_s);
    tar.append(header.data(), header.size());
    tar += file.content;
    tar.append((kBlockBytes - tar.size() % kBlockBytes) % kBlockBytes, '\0');
  }
  tar.append(2 * kBlockBytes, '\0');
  ASSERT(tar.size() <= std::numeric_limits<uInt>::max());
  z_stream stream{};
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return base::fail(base::ErrorCode::kIoError, "zlib does not start");
  }
  std::string out(::deflateBound(&stream, static_cast<uLong>(tar.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(tar.data());
  stream.avail_in = static_cast<uInt>(tar.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int done = ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  ASSERT(done == Z_STREAM_END);  // deflateBound() is enough for one call
  return out;
}

}  // namespace llorch::cli::bundle
