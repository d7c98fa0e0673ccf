package choose

import (
	"context"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
)

// copyOf is a file of a checkpoint in one folder.
type copyOf struct {
	file  checkpoint.File
	tasks []cluster.Task // that share the folder
	by    cluster.Task   // of tasks: reads it
	err   error          // what is wrong with it; nil: nothing
}

// copiesOf lists every file in every folder that holds it. It spreads the
// reading over the tasks that share a folder.
func copiesOf(candidate checkpoint.Candidate, places []Place) (all []*copyOf) {
	next := make([]int, len(places)) // by place: whose turn it is
	for _, file := range candidate.Manifest.Files {
		for i, p := range places {
			if slices.Contains(candidate.Holders[file.Name], p.Tasks[0]) {
				all = append(all, &copyOf{file: file, tasks: p.Tasks, by: p.Tasks[next[i]%len(p.Tasks)]})
				next[i]++
			}
		}
	}
	return all
}

// verify has every copy read, by all tasks at once and by each task one after
// the other.
func verify(ctx context.Context, folders Folders, id string, copies []*copyOf) {
	readers := map[cluster.Task][]*copyOf{}
	for _, c := range copies {
		readers[c.by] = append(readers[c.by], c)
	}
	var reading sync.WaitGroup
	for _, list := range readers {
		reading.Go(func() {
			for _, c := range list {
				c.check(ctx, folders, id)
			}
		})
	}
	reading.Wait()
}

func (c *copyOf) check(ctx context.Context, folders Folders, id string) {
	c.err = folders.Verify(ctx, c.by, id, c.file)
}

// judge returns, by file, which tasks hold a good copy and what is wrong with
// the others.
func judge(copies []*copyOf) (holders map[string][]cluster.Task, faults map[string][]string) {
	holders, faults = map[string][]cluster.Task{}, map[string][]string{}
	for _, c := range copies {
		if c.err != nil {
			faults[c.file.Name] = append(faults[c.file.Name], c.err.Error())
			continue
		}
		holders[c.file.Name] = append(holders[c.file.Name], c.tasks...)
	}
	return holders, faults
}
