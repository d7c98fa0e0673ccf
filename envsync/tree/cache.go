package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/atomicfile"
	"github.com/plx-run/plx/internal/bounded"
)

// minCacheAge is the minimum age of a file's last change for its hash to be
// cached. If a file changes twice within the resolution of its timestamps, the
// second change cannot be seen; some file systems have a resolution of two
// seconds.
const minCacheAge = 3 * time.Second

// maxCache is the maximum size in bytes of the cache file.
const maxCache = 1 << 28

// cached is the cache entry of a file: its hash, and the attributes that
// change when the file's content is written.
type cached struct {
	Size    int64  `json:"size"`
	ModTime int64  `json:"mtime"` // time of the last change of the content, in nanoseconds of Unix time
	Change  int64  `json:"ctime"` // last change of the inode, in nanoseconds of Unix time
	Inode   uint64 `json:"inode"`
	Device  uint64 `json:"dev"`
	Sum     string `json:"sum"`
	Chunks  Chunks `json:"chunks,omitempty"` // chunks of the file if it has at least leastChunked bytes; empty for a smaller file
}

// cache stores the hashes of the files of one folder, by path relative to the
// folder. If an entry cannot be read or written, the hash is computed again.
type cache struct {
	file string // path of the cache file; "": the cache is not stored

	mu      sync.Mutex
	before  map[string]cached // entries as read from the cache file
	now     map[string]cached // entries to write to the cache file
	changed bool              // true if now contains an entry that before lacks, so the cache file must be written
}

// identity returns the attributes of a file that change when its content is
// written (size, times, inode, device). It returns false if the file system
// does not provide them.
func identity(info fs.FileInfo) (cached, bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return cached{}, false
	}
	return cached{Size: info.Size(), ModTime: info.ModTime().UnixNano(), Change: changed(s).UnixNano(),
		Inode: s.Ino, Device: uint64(s.Dev)}, true
}

// openCache reads the hash cache for the folder root from a file in dir, the
// folder of all hash caches. If dir is "", the cache is empty and is not
// stored.
func openCache(dir, root string) *cache {
	c := &cache{before: map[string]cached{}, now: map[string]cached{}}
	if dir == "" {
		return c
	}
	name := sha256.Sum256([]byte(root))
	c.file = filepath.Join(dir, hex.EncodeToString(name[:16]))
	if text, err := bounded.ReadFile(c.file, maxCache); err != nil || json.Unmarshal(text, &c.before) != nil {
		c.before = map[string]cached{}
	}
	return c
}

// find returns the cached hashes of the file p if info shows that the file is
// unchanged since they were computed.
func (c *cache) find(p string, info fs.FileInfo) (content, bool) {
	want, ok := identity(info)
	c.mu.Lock()
	defer c.mu.Unlock()
	known, found := c.before[p]
	want.Sum, want.Chunks = known.Sum, known.Chunks
	if !ok || !found || known != want {
		return content{}, false
	}
	sum, err := ParseSum(known.Sum)
	if err != nil || known.Size >= leastChunked && known.Chunks.check(known.Size) != nil {
		return content{}, false
	}
	c.now[p] = known
	return content{sum, known.Chunks}, true
}

// keep adds the hashes of the file p to the cache. info is the file's state
// before it was hashed, begun the time at which the scan started. A file that
// changed less than the constant minCacheAge before begun is not cached.
func (c *cache) keep(p string, info fs.FileInfo, begun time.Time, of content) {
	entry, ok := identity(info)
	if last := time.Unix(0, max(entry.ModTime, entry.Change)); !ok || begun.Sub(last) < minCacheAge {
		return
	}
	entry.Sum, entry.Chunks = of.sum.String(), of.chunks
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[p], c.changed = entry, true
}

// save replaces the cache file. If two processes save at the same time, the
// file of the last one stays.
func (c *cache) save() error {
	if c.file == "" || !c.changed && len(c.now) == len(c.before) {
		return nil
	}
	text, err := json.Marshal(c.now)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return fmt.Errorf("write the hash cache: %w", err)
	}
	if err := atomicfile.WriteFile(c.file, text, 0o600); err != nil {
		return fmt.Errorf("write the hash cache: %w", err)
	}
	return nil
}
