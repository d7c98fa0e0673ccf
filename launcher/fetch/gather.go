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

// checkpoint is one version of a checkpoint: hosts may have different
// manifests of the same checkpoint. It combines the lists of the hosts with
// this manifest.
type checkpoint struct {
	version
	made    time.Time // time in the manifest; zero if the manifest is unreadable
	files   []file    // files of the checkpoint, the manifest last
	votes   int       // number of hosts that have this manifest
	missing string    // why the checkpoint cannot be fetched; "" if it can
}

// version identifies a checkpoint by its folder and its manifest, because
// hosts can have different manifests in the same folder.
type version struct {
	folder   string // path below ~/.plx/ckpt/<name>, separated by slashes
	manifest string // SHA-256 of the manifest; "" if the manifest is unreadable
}

// gather combines the hosts' lists of checkpoints. In the result, the newest
// checkpoint of each folder is first. If hosts have different manifests of a
// checkpoint, gather prefers a version of which all files exist. Among several
// of these, it prefers the version that most hosts have.
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

// add records that a host has this checkpoint's manifest, and which of its
// files the host has.
func (c *checkpoint) add(host int, k protocol.HostCheckpoint) {
	c.votes++
	c.missing = k.Damage
	for i, f := range k.Files {
		if i < len(c.files) && f.Here {
			c.files[i].from = append(c.files[i].from, origin{host: host, name: path.Join(k.Folder, f.Name)})
		}
	}
}

// check sets c.missing if the manifest is unreadable or no host has one of the
// files.
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

// newestFirst compares two checkpoints for sorting. It orders them by parent
// folder, and within a folder by step, time and generation, the highest first,
// as package checkpoint does. The generation counts the restarts of the job.
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
		numbers[i], _ = strconv.ParseUint(m[i+1], 10, 64) // on overflow, ParseUint returns the largest uint64
	}
	return numbers
}
