package trainer

import (
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/owner"
)

// standing is where a worker's steps count: in its group, whose workers take
// every step together.
type standing struct {
	from          int // it began behind
	group, groups int
	speaks        bool // its count is the group's
}

// stands is a connected replica's standing. Of those of a group the first one
// speaks, but in backup mode no worker: the others go on while it is late.
func (r *Replica) stands() standing {
	rank, groups := r.job.WorkerID(), r.declared.Groups()
	g := slices.IndexFunc(groups, func(g owner.Range) bool { return rank < g.Hi })
	return standing{from: r.step, group: g, groups: len(groups),
		speaks: rank == groups[g].Lo && r.declared.Sync.Mode != owner.Backup}
}

// word is a message that tells how far the task has come.
func (t *task) word(kind cluster.ControlKind) cluster.ControlMessage {
	m := cluster.ControlMessage{Kind: kind, Step: t.job.steps.Load()} // first: parallelize counts once there is a replica
	if r := t.job.replica.Load(); r != nil {
		m.From, m.Group, m.Groups = int64(r.standing.from), r.standing.group, r.standing.groups
		if t.job.IsChief() && !r.declared.Sync.Together() {
			m.Cut = listed(r.cut)
			m.Last = r.standing.speaks && r.saver.isDone()
		}
	}
	m.Made = listed(t.progress.Steps())
	return m
}

// lastWord is word where nothing of the task takes a step any more.
func (t *task) lastWord(kind cluster.ControlKind) cluster.ControlMessage {
	m := t.word(kind)
	r := t.job.replica.Load()
	m.Last = m.Made != nil || r != nil && r.standing.speaks
	return m
}

// listed is a list of steps as a message has it: nil where it would be too long.
func listed(steps []uint64) (all []int64) {
	if len(steps) > cluster.MaxGroups {
		return nil
	}
	for _, n := range steps {
		all = append(all, int64(n))
	}
	return all
}
