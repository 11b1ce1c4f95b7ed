#pragma once
// /v1/files: what batches read and write, kept sealed until it expires or is deleted.
#include "orchestratord/http/context.h"
#include "orchestratord/http/deferred/batch_runner.h"

namespace llorch::orchestratord::http::openai {

// REQUIRES: `context` and `batches` outlive it, the context has blobs; every member is called on the thread of kept files.
class Files {
 public:
  static constexpr std::string_view kKind = "file";

  Files(const Context& context, const deferred::BatchRunner& batches) : context_(context), batches_(batches) {}

  void create(const net::Request& request, const net::ExchangePtr& exchange);
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void content(const net::Request& request, const net::ExchangePtr& exchange);
  void remove(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  const store::blobs::Blob* find(const net::Request& request, const net::ExchangePtr& exchange) const;

  const Context& context_;
  const deferred::BatchRunner& batches_;
};

// What a file's facts say beside what every blob's do.
struct FileFacts {
  std::string filename;
  std::string purpose;  // "batch", "batch_output"
  bool hidden = false;  // a batch still writes it
};
std::string encode_file(const FileFacts& facts);
FileFacts decode_file(const store::blobs::Blob& file);

inline constexpr std::size_t kListMax = 10'000;  // files or batches of a page

}  // namespace llorch::orchestratord::http::openai
