#pragma once
// The content of blobs as an answer that is as long as they are.
#include <string>
#include <vector>

#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http {

// Answers with the blobs' contents, one behind the other, as fast as the client takes them; a client that lets the rest lie holds up
// to 256 KiB of them, and is cut off when it has taken nothing for orchestratord.stream.slow_client_timeout_ms. A blob that cannot be
// read breaks the answer off. REQUIRES: the context outlives the exchange, and this is the
// thread of kept files.
void send_blobs(const Context& context, std::vector<std::string> ids, std::string_view content_type,
                const net::ExchangePtr& exchange);

}  // namespace llorch::orchestratord::http
