#pragma once
// /v2/artifacts: documents that a client asks to have kept, sealed, until they expire or are deleted. An artefact is what the
// client posts and nothing else: no prompt and no output becomes one by itself. Its id is the hash of its document.
#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http {

// REQUIRES: `context` outlives it and has blobs; every member is called on the thread of kept files.
class Artifacts {
 public:
  static constexpr std::string_view kKind = "artifact";

  explicit Artifacts(const Context& context) : context_(context) {}

  // 201: it is kept from now on; 200: it was before, and nothing changes.
  void create(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void remove(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  // The caller's own; null: there is none.
  const store::blobs::Blob* find(const net::http::Principal& caller, const std::string& id) const;

  const Context& context_;
};

}  // namespace llorch::orchestratord::http
