package tree

import "sync/atomic"

// Count is the progress of one Scan or of several consecutive Scans. Any
// goroutine may read it.
type Count struct{ found, read, bytes atomic.Int64 }

// Now returns the number of files found so far, the number of files whose hash
// is known (computed or cached), and the sum of the sizes of the latter in
// bytes.
func (c *Count) Now() (found, read, bytes int64) {
	return c.found.Load(), c.read.Load(), c.bytes.Load()
}

// Write adds len(p) to the number of bytes read so far; Scan passes all bytes
// that it hashes through it.
func (c *Count) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}
