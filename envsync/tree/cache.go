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

// settled is how long ago a file must have changed for its hash to be kept. A file
// that changes twice within the resolution of its times would look unchanged; file
// systems have resolutions of up to two seconds.
const settled = 3 * time.Second

// maxCache bounds the file of a cache, in bytes.
const maxCache = 1 << 28

// cached is a file's hash and what does not stay when its content changes.
type cached struct {
	Size    int64  `json:"size"`
	ModTime int64  `json:"mtime"` // nanoseconds of Unix time
	Change  int64  `json:"ctime"` // of the inode; nanoseconds of Unix time
	Inode   uint64 `json:"inode"`
	Device  uint64 `json:"dev"`
	Sum     string `json:"sum"`
	Chunks  Chunks `json:"chunks,omitempty"` // of a large file
}

// cache keeps the hashes of the files of one folder, by path relative to it. What
// cannot be read or written is computed again.
type cache struct {
	file string // "": the cache is not kept

	mu      sync.Mutex
	before  map[string]cached // as read
	now     map[string]cached // to be written
	changed bool              // now has what before has not
}

// identity returns what of a file does not stay when its content changes. False:
// the file system does not tell.
func identity(info fs.FileInfo) (cached, bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return cached{}, false
	}
	return cached{Size: info.Size(), ModTime: info.ModTime().UnixNano(), Change: changed(s).UnixNano(),
		Inode: s.Ino, Device: uint64(s.Dev)}, true
}

// openCache reads the cache for the folder root. dir is the folder of all caches,
// or "".
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

// find returns the hashes of a file if the file has not changed since they were kept.
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

// keep keeps the hashes of a file that had info before it was hashed, at the time
// begun.
func (c *cache) keep(p string, info fs.FileInfo, begun time.Time, of content) {
	entry, ok := identity(info)
	if last := time.Unix(0, max(entry.ModTime, entry.Change)); !ok || begun.Sub(last) < settled {
		return
	}
	entry.Sum, entry.Chunks = of.sum.String(), of.chunks
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[p], c.changed = entry, true
}

// save replaces the file of the cache. Of two that save at once one wins.
func (c *cache) save() error {
	if c.file == "" || !c.changed && len(c.now) == len(c.before) {
		return nil
	}
	text, err := json.Marshal(c.now)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return fmt.Errorf("keep hashes: %w", err)
	}
	if err := atomicfile.WriteFile(c.file, text, 0o600); err != nil {
		return fmt.Errorf("keep hashes: %w", err)
	}
	return nil
}
