#pragma once
// Situations that must come up over many seeds: a simulation that never meets them proves nothing about them. A batch fails
// when one of kProbes was never reached.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace llorch::sim {

using Counts = std::map<std::string, std::int64_t, std::less<>>;

inline constexpr auto kProbes = std::to_array<std::string_view>({
    "job accepted",
    "job completed",
    "job refused: QUEUE_FULL",
    "job refused: STORE_UNAVAILABLE",
    "job refused: DEADLINE_UNMET",
    "ended: CANCELLED",
    "ended: TIMEOUT",
    "ended: RETRY_EXHAUSTED",
    "ended: QUEUE_FULL_DROP_LRU",
    "ended: REPLAY_DIVERGED",
    "ended: WORKER_START_FAILED",
    "ended: WORKER_START_TIMEOUT",
    "ended: CORRUPT_FILE",
    "ended: VRAM_OOM",
    "ended: WORKER_RESET",
    "202 lost on its way",
    "submitted again, the first one had been accepted",
    "crash between commit and 202",
    "crash before a commit",
    "crash with a job in mid-stream",
    "crash with a start in flight",
    "disk refused an ending, which was written again",
    "an ending that was refused is there after a crash",
    "disk refused an admission",
    "retry after worker death",
    "replay under a reading client",
    "reconnect after restart before the replay came so far",
    "reconnect in mid-stream",
    "stored ending served",
    "410 for events no longer held",
    "clients gone cancelled a job",
    "slow client cut off",
    "cancel before the 202",
    "cancel of a queued job",
    "cancel of a running job",
    "cancel met the end",
    "batch job promoted",
    "evicted an idle worker",
    "claimed a worker for a model that waited",
    "worker crashed while loading",
    "worker crashed while busy",
    "worker hung and was killed",
    "worker start timed out",
    "device out of memory at a start",
    "device lost with workers on it",
    "worker could not be spawned",
    "pool crashed with workers",
    "memory of a dead worker held on",
    "start refused: not enough memory",
    "old orchestratord's worker adopted",
    "partition",
    "connection reset",
    "orchestratord hung",
    "pool hung",
    "wall clock set",
    "drain begun",
    "pool drained",
    "deadline of a drain",
    "job put back by an operator",
    "restart with a drained pool",
    "reload: done",
    "reload: rolled_back",
    "reload: failed",
    "worker stopped: idle",
    "worker stopped: threshold",
    "worker stopped: purge",
    "worker stopped: drain",
    "worker stopped: reload",
    "crashes held up a start",
});

}  // namespace llorch::sim
