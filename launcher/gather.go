package launcher

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/plx-run/plx/launcher/agent"
)

// checkpoint is one that hosts keep, put together from what each of them says.
type checkpoint struct {
	folder  string    // below the name's, with slashes
	made    time.Time // as most hosts say
	files   []keptFile
	missing string // why it cannot be fetched, "" where it can
}

// keptFile is a file of a checkpoint, and which hosts have it.
type keptFile struct {
	agent.KeptFile
	hosts []int
}

// gather puts together the checkpoints that hosts list, the newest of each
// folder first. Hosts keep one manifest; where one says otherwise than the
// most, it is left out.
func gather(lists [][]agent.Kept) []checkpoint {
	versions := map[string]map[string]*version{} // by folder, by the manifest's sum
	for host, list := range lists {
		for _, k := range list {
			if versions[k.Folder] == nil {
				versions[k.Folder] = map[string]*version{}
			}
			sum := manifestSum(k)
			v := versions[k.Folder][sum]
			if v == nil {
				v = newVersion(k)
				versions[k.Folder][sum] = v
			}
			v.add(host, k)
		}
	}
	var all []checkpoint
	for _, vs := range versions {
		all = append(all, best(vs))
	}
	slices.SortFunc(all, newestFirst)
	return all
}

// version is what hosts with the same manifest say of a checkpoint.
type version struct {
	checkpoint
	hosts int
}

func newVersion(k agent.Kept) *version {
	v := &version{checkpoint: checkpoint{folder: k.Folder, made: k.Made}}
	for _, f := range k.Files {
		v.files = append(v.files, keptFile{KeptFile: f})
	}
	return v
}

// manifestSum tells the versions of a manifest apart, "" for a damaged one.
func manifestSum(k agent.Kept) string {
	if len(k.Files) == 0 {
		return ""
	}
	return k.Files[len(k.Files)-1].Sum
}

func (v *version) add(host int, k agent.Kept) {
	v.hosts++
	v.missing = k.Damage
	for i, f := range k.Files {
		if i < len(v.files) && f.Here {
			v.files[i].hosts = append(v.files[i].hosts, host)
		}
	}
}

// best chooses among the versions of a checkpoint: a whole one before others,
// then that of the most hosts.
func best(versions map[string]*version) checkpoint {
	var chosen *version
	for _, sum := range slices.Sorted(maps.Keys(versions)) { // in order, so that equals are chosen alike
		v := versions[sum]
		v.look()
		if chosen == nil || v.better(chosen) {
			chosen = v
		}
	}
	return chosen.checkpoint
}

func (v *version) better(other *version) bool {
	if whole := v.missing == ""; whole != (other.missing == "") {
		return whole
	}
	return v.hosts > other.hosts
}

// look notes which files no host has.
func (v *version) look() {
	var none []string
	for _, f := range v.files {
		if len(f.hosts) == 0 {
			none = append(none, f.Name)
		}
	}
	switch {
	case len(v.files) == 0:
		v.missing = "its manifest is unreadable: " + v.missing
	case len(none) > 0:
		v.missing = "no host that was reached has " + strings.Join(none, ", ")
	}
}

// newestFirst orders checkpoints by the folder they lie in, then as trainers do:
// by step, time and generation, the highest first.
func newestFirst(a, b checkpoint) int {
	x, y := stepAndGeneration(a.folder), stepAndGeneration(b.folder)
	return cmp.Or(cmp.Compare(path.Dir(a.folder), path.Dir(b.folder)),
		cmp.Compare(y[0], x[0]), b.made.Compare(a.made), cmp.Compare(y[1], x[1]), cmp.Compare(b.folder, a.folder))
}

var checkpointID = regexp.MustCompile(`^([0-9]{12,20})-g([0-9]{1,10})-`)

func stepAndGeneration(folder string) (numbers [2]uint64) {
	m := checkpointID.FindStringSubmatch(path.Base(folder))
	if m == nil {
		return numbers
	}
	for i := range numbers {
		numbers[i], _ = strconv.ParseUint(m[i+1], 10, 64) // too large a one is the largest
	}
	return numbers
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$`)

// checkKept refuses what cannot become a path below a folder of this machine.
func checkKept(k agent.Kept) error {
	if !fs.ValidPath(k.Folder) || k.Folder == "." || len(k.Folder) > 1000 || !filepath.IsLocal(filepath.FromSlash(k.Folder)) ||
		strings.ContainsFunc(k.Folder, unicode.IsControl) {
		return fmt.Errorf("%q is no folder of a checkpoint", k.Folder)
	}
	for _, f := range k.Files {
		if !plainName.MatchString(f.Name) || f.Size < 0 {
			return fmt.Errorf("checkpoint %s: %q is no file of a checkpoint", k.Folder, f.Name)
		}
	}
	return nil
}
