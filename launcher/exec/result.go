package exec

import (
	"crypto/sha256"
	"hash"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
)

// result is what a host answers.
type result struct {
	host           *hosts.Host
	status         int   // exit status of the command
	err            error // why there is no exit status, and nothing more is done on the host; nil: there is one
	stdout, stderr kept
}

// Bounds of the memory that outputs take, in bytes.
const (
	mostKept = 4 << 20   // of one stream
	allKept  = 256 << 20 // of all streams
)

func newResult(h *hosts.Host, n int) *result {
	limit := min(mostKept, allKept/(2*n))
	return &result{host: h, stdout: newKept(limit), stderr: newKept(limit)}
}

// Named puts the host's name before an error.
func (r *result) Named(err error) error { return r.host.Named(err) }

// code returns the exit status with which the host counts.
func (r *result) code() int {
	if r.err != nil {
		return exit.CodePlx
	}
	return r.status
}

// kept is the beginning of a stream.
type kept struct {
	limit int // most bytes to keep
	text  []byte
	total int64     // bytes that were written
	sum   hash.Hash // SHA-256 of all of them
}

func newKept(limit int) kept { return kept{limit: limit, sum: sha256.New()} }

func (k *kept) Write(p []byte) (int, error) {
	k.total += int64(len(p))
	k.sum.Write(p) // never fails
	k.text = append(k.text, p[:min(len(p), k.limit-len(k.text))]...)
	return len(p), nil
}

// cut returns how many bytes were not kept.
func (k *kept) cut() int64 { return k.total - int64(len(k.text)) }

// key is equal for equal streams only.
func (k *kept) key() string { return string(k.sum.Sum(nil)) }
