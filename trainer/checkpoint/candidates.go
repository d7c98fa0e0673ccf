package checkpoint

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
)

// Place is one folder of checkpoints, as the chief (worker 0) learns about it:
// its content, and the tasks that share it.
type Place struct {
	Tasks   []cluster.Task // the tasks that share the folder, at least one
	Host    string         // name of one host that can reach the folder, for messages
	Holding FolderCopies   // the checkpoints that the folder holds
}

func (p Place) String() string { return p.Tasks[0].String() + " on host " + p.Host }

// Candidate is a checkpoint that some folder holds, with the facts that decide
// whether training can resume from it.
type Candidate struct {
	ID       string
	Manifest *Manifest // the checkpoint's manifest; nil if it is missing or damaged in every folder
	// Holders are, by file name, the tasks whose folders have the file with
	// the size in the manifest. Its checksum is not compared yet; see
	// [Folder.Verify].
	Holders map[string][]cluster.Task
	// Missing says why the checkpoint cannot be restored, for example which
	// file no host has. Empty means that nothing is missing; checksums are not
	// compared yet.
	Missing string
	// Unfinished means that the save of the checkpoint never completed: no
	// folder has a manifest of it, not even a damaged one.
	Unfinished bool
}

// Candidates merges the content of all folders into a list of checkpoints, the
// newest first.
func Candidates(places []Place) []Candidate {
	byID := map[string][]found{}
	for i := range places {
		for _, h := range places[i].Holding {
			if _, err := parseID(h.ID); err != nil {
				continue // Skip it: other hosts send the names, so they may be invalid.
			}
			byID[h.ID] = append(byID[h.ID], found{&places[i], h})
		}
	}
	newest := func(a, b []found) int { return newestFirst(best(a).held, best(b).held) }
	var candidates []Candidate
	for _, in := range slices.SortedFunc(maps.Values(byID), newest) {
		candidates = append(candidates, candidate(in))
	}
	return candidates
}

// found is a checkpoint in one of the folders.
type found struct {
	*Place
	held FolderCopy
}

// best returns the first element of in that has a manifest, or in[0] if none
// has one.
func best(in []found) found {
	return in[max(0, slices.IndexFunc(in, func(f found) bool { return f.held.Manifest != nil }))]
}

func candidate(in []found) Candidate {
	first := best(in)
	c := Candidate{ID: first.held.ID, Manifest: first.held.Manifest}
	if c.Manifest == nil {
		why, finished := damage(in)
		c.Missing, c.Unfinished = fmt.Sprintf("checkpoint %s: %s", c.ID, why), !finished
		return c
	}
	if other := disagreeing(in, c.Manifest); other != nil {
		c.Missing = fmt.Sprintf("checkpoint %s: %s has a different manifest of it than %s: another job wrote it", c.ID, other, first)
		return c
	}
	c.Holders = map[string][]cluster.Task{}
	var missing []string
	for _, file := range c.Manifest.Files {
		holders, wrong := holders(file, in)
		if c.Holders[file.Name] = holders; len(holders) == 0 {
			missing = append(missing, wrong)
		}
	}
	if len(missing) > 0 {
		c.Missing = fmt.Sprintf("checkpoint %s: %s", c.ID, shorten(missing))
	}
	return c
}

// damage returns why no folder has a valid manifest of the checkpoint.
// finished is true if some folder has a damaged manifest.
func damage(in []found) (why string, finished bool) {
	var reasons []string
	for _, f := range in {
		if f.held.Damage != "" && f.held.Damage != unfinished {
			reasons = append(reasons, fmt.Sprintf("%s: %s", f.Place, f.held.Damage))
		}
	}
	if reasons == nil {
		return "its manifest is on no host: it was not finished", false
	}
	return shorten(reasons), true
}

// disagreeing returns a folder whose manifest of the checkpoint differs from
// m, or nil if all manifests are equal.
func disagreeing(in []found, m *Manifest) *Place {
	want, err := m.Encode()
	for _, f := range in {
		if f.held.Manifest == nil || f.held.Manifest == m {
			continue
		}
		if b, other := f.held.Manifest.Encode(); err != nil || other != nil || !bytes.Equal(b, want) {
			return f.Place
		}
	}
	return nil
}

// holders returns the tasks whose folders have file with the right size. If no
// folder has it, wrong says why.
func holders(file File, in []found) (tasks []cluster.Task, wrong string) {
	var sizes []string
	for _, f := range in {
		size, ok := f.held.Files[file.Name]
		switch {
		case ok && size == file.Size:
			tasks = append(tasks, f.Tasks...)
		case ok:
			sizes = append(sizes, fmt.Sprintf("%s has %d bytes of it, not %d", f.Place, size, file.Size))
		}
	}
	if sizes == nil {
		return tasks, fmt.Sprintf("%s is on no host, %s wrote it", file.Name, file.Task)
	}
	return tasks, fmt.Sprintf("%s has the right size on no host: %s", file.Name, shorten(sizes))
}

// shorten joins parts with commas. It lists the first three and counts the
// others.
func shorten(parts []string) string {
	const most = 3
	if more := len(parts) - most; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(parts[:most], ", "), more)
	}
	return strings.Join(parts, ", ")
}
