package fetch

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// checkpoint is put together from what hosts with the same manifest list.
type checkpoint struct {
	version
	made    time.Time // time from the manifest; zero: the manifest is unreadable
	files   []file    // the manifest is the last
	votes   int       // number of hosts with this manifest
	missing string    // why the checkpoint cannot be fetched; empty: it can
}

// version is one of the checkpoints in a folder, if hosts have different manifests.
type version struct {
	folder   string // path below ~/.plx/ckpt/<name>, with slashes
	manifest string // SHA-256 of the manifest; empty: the manifest is unreadable
}

// gather puts together the checkpoints that hosts list, the newest of each folder first.
// If hosts have different manifests of a checkpoint, gather chooses one: of a complete
// version, then of the version that most hosts have.
func gather(lists [][]protocol.HostCheckpoint) []checkpoint {
	versions := map[version]*checkpoint{}
	for host, list := range lists {
		for _, k := range list {
			v := version{folder: k.Folder}
			if last := len(k.Files) - 1; last >= 0 {
				v.manifest = k.Files[last].Sum
			}
			if versions[v] == nil {
				versions[v] = &checkpoint{version: v, made: k.Made, files: filesOf(k)}
			}
			versions[v].add(host, k)
		}
	}
	var all []checkpoint
	for _, c := range versions {
		c.check()
		all = append(all, *c)
	}
	incomplete := func(c checkpoint) int { return min(1, len(c.missing)) }
	slices.SortFunc(all, func(a, b checkpoint) int {
		return cmp.Or(cmp.Compare(a.folder, b.folder), cmp.Compare(incomplete(a), incomplete(b)),
			cmp.Compare(b.votes, a.votes), cmp.Compare(a.manifest, b.manifest))
	})
	all = slices.CompactFunc(all, func(a, b checkpoint) bool { return a.folder == b.folder })
	slices.SortFunc(all, newestFirst)
	return all
}

func filesOf(k protocol.HostCheckpoint) (files []file) {
	for _, f := range k.Files {
		files = append(files, file{size: f.Size, sum: f.Sum, to: []string{path.Join(k.Folder, f.Name)}})
	}
	return files
}

// add notes that a host has the manifest, and which files it has.
func (c *checkpoint) add(host int, k protocol.HostCheckpoint) {
	c.votes++
	c.missing = k.Damage
	for i, f := range k.Files {
		if i < len(c.files) && f.Here {
			c.files[i].from = append(c.files[i].from, origin{host: host, name: path.Join(k.Folder, f.Name)})
		}
	}
}

// check writes missing, from the files that no host has.
func (c *checkpoint) check() {
	var none []string
	for _, f := range c.files {
		if len(f.from) == 0 {
			none = append(none, path.Base(f.to[0]))
		}
	}
	switch {
	case len(c.files) == 0:
		c.missing = "its manifest is unreadable: " + c.missing
	case len(none) > 0:
		c.missing = "no host that was reached has " + strings.Join(none, ", ")
	}
}

// newestFirst orders checkpoints by their parent folders, then by step, time and
// generation, the highest first, as package checkpoint does.
func newestFirst(a, b checkpoint) int {
	x, y := stepAndGeneration(a.folder), stepAndGeneration(b.folder)
	return cmp.Or(cmp.Compare(path.Dir(a.folder), path.Dir(b.folder)),
		cmp.Compare(y[0], x[0]), b.made.Compare(a.made), cmp.Compare(y[1], x[1]), cmp.Compare(b.folder, a.folder))
}

var checkpointID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{12,20})-g([0-9]{1,10})-`) })

func stepAndGeneration(folder string) (numbers [2]uint64) {
	m := checkpointID().FindStringSubmatch(path.Base(folder))
	if m == nil {
		return numbers
	}
	for i := range numbers {
		numbers[i], _ = strconv.ParseUint(m[i+1], 10, 64) // a number that is too large becomes the largest
	}
	return numbers
}
