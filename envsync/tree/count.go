package tree

import "sync/atomic"

// Count is how far a Scan is, or several one after another. Any goroutine may read it.
type Count struct{ found, read, bytes atomic.Int64 }

// Now returns the number of files that were found so far, how many of those were read
// (or have a hash in the cache), and the bytes of the latter.
func (c *Count) Now() (found, read, bytes int64) {
	if c == nil {
		return 0, 0, 0
	}
	return c.found.Load(), c.read.Load(), c.bytes.Load()
}

func (c *Count) addFound() {
	if c != nil {
		c.found.Add(1)
	}
}

func (c *Count) addRead() {
	if c != nil {
		c.read.Add(1)
	}
}

func (c *Count) addBytes(n int64) {
	if c != nil {
		c.bytes.Add(n)
	}
}

// byteCount counts what is written to it.
type byteCount struct{ *Count }

func (b byteCount) Write(p []byte) (int, error) {
	b.addBytes(int64(len(p)))
	return len(p), nil
}
