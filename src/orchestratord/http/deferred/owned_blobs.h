#pragma once
// What is kept, as its owners see it. REQUIRES: on the thread of kept files.
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http::deferred {

// Null: none of this kind has the id, it is another's, or nothing is kept here.
const store::blobs::Blob* find_owned(const Context& context, std::string_view kind, const std::string& id,
                                     const net::http::Principal& caller);
// Oldest first.
std::vector<const store::blobs::Blob*> list_owned(const Context& context, std::string_view kind,
                                                  const net::http::Principal& caller);
std::vector<std::string> ids_of(const std::vector<const store::blobs::Blob*>& blobs);

}  // namespace llorch::orchestratord::http::deferred
