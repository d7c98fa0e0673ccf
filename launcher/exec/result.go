package exec

import (
	"crypto/sha256"
	"hash"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
)

// result is the output and exit status of the command on one host.
type result struct {
	host           *hosts.Host
	status         int   // exit status of the command
	err            error // why there is no exit status; nil if there is one. A host with an error is skipped in later steps.
	stdout, stderr kept
}

// Limits of the memory for the hosts' output, in bytes.
const (
	maxKept      = 4 << 20   // maximum for one stream of one host
	maxKeptOfAll = 256 << 20 // maximum for the streams of all hosts together
)

func newResult(h *hosts.Host, n int) *result {
	limit := min(maxKept, maxKeptOfAll/(2*n))
	return &result{host: h, stdout: newKept(limit), stderr: newKept(limit)}
}

// Named puts the host's name before an error.
func (r *result) Named(err error) error { return r.host.Named(err) }

// code returns the exit status that this host contributes to the result of
// Run.
func (r *result) code() int {
	if r.err != nil {
		return exit.CodePlx
	}
	return r.status
}

// kept stores the beginning of a stream, and the checksum of the whole stream.
type kept struct {
	limit int // maximum number of bytes to store in text
	text  []byte
	total int64     // number of bytes written to the stream
	sum   hash.Hash // SHA-256 of all bytes written to the stream
}

func newKept(limit int) kept { return kept{limit: limit, sum: sha256.New()} }

func (k *kept) Write(p []byte) (int, error) {
	k.total += int64(len(p))
	k.sum.Write(p) // a hash never returns an error
	k.text = append(k.text, p[:min(len(p), k.limit-len(k.text))]...)
	return len(p), nil
}

// cut returns the number of bytes at the end of the stream that were not
// stored.
func (k *kept) cut() int64 { return k.total - int64(len(k.text)) }

// key returns the stream's checksum, which is the same only for equal streams.
func (k *kept) key() string { return string(k.sum.Sum(nil)) }
