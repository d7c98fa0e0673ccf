package tree

import "sync/atomic"

// Count is how far a Scan is, or several one after another. Any goroutine may read it.
type Count struct{ found, read, bytes atomic.Int64 }

// Now returns the number of files that were found so far, how many of those were read
// (or have a hash in the cache), and the bytes of the latter.
func (c *Count) Now() (found, read, bytes int64) {
	return c.found.Load(), c.read.Load(), c.bytes.Load()
}

// Write counts the bytes that are written to it.
func (c *Count) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}
