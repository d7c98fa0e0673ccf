package trainer

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/depot"
	"github.com/plx-run/plx/trainer/owner"
)

// saver is the chief's part in checkpoints: it decides when one is made.
type saver struct {
	r    *Replica
	due  bool      // one is to be made as soon as none is under way
	last time.Time // when the last one began
	at   int       // steps that it has seen, or that this run began with

	telling sync.WaitGroup
	mu      sync.Mutex
	asked   []request // who wants one made, and to be told
	resting *rest     // the chief is held, or is about to be
	done    bool      // the chief takes no further step, others may
	result  *result   // what became of the last one; nil: it is yet to be made
}

// openDepot joins the other tasks' checkpoint folders, where there are to be any.
func (j *Job) openDepot(ctx context.Context) (err error) {
	dir := j.config.ckptDir
	if dir == "" {
		return nil
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(j.contract.Checkpoints, dir) // without a launcher, below the working folder
	}
	j.depot, err = depot.Open(ctx, depot.Config{
		Peers: j.peers(), Door: j.door, Cluster: j.contract.Cluster, Dir: dir, Keep: j.config.ckptKeep,
		Start: meshStart, Silence: meshSilence, Job: j.contract.Job, Logf: j.Logf,
	})
	if err != nil {
		return fmt.Errorf("--ckpt-dir %s: %w", j.config.ckptDir, err)
	}
	return nil
}

// restore learns which checkpoint training goes on from. Owners read it when
// they hear of it in the declaration.
func (r *Replica) restore(ctx context.Context) error {
	j := r.job
	if j.depot == nil {
		return nil
	}
	defer j.waiting(func() string { return "which checkpoint to go on from" })()
	var m *checkpoint.Manifest
	var err error
	if j.IsChief() {
		m, err = j.depot.Choose(ctx, r.fits)
	} else {
		m, err = j.depot.Chosen(ctx)
	}
	if err != nil || m == nil {
		return err
	}
	r.declared.First, r.declared.Checkpoint, r.cut = m.Step, m.ID, m.Cut
	if len(m.Cut) == len(r.declared.Groups()) && !r.declared.Sync.Together() {
		r.declared.Cut = m.Cut
	}
	if j.IsChief() {
		j.Logf(slog.LevelInfo, "going on after step %d, from checkpoint %s of job %s, made %v ago",
			m.Step, m.ID, m.Job, time.Since(m.Time).Round(time.Second))
		r.compare(m)
		r.compareCut(m)
	}
	return nil
}

// compareCut says where workers go on that do not wait for each other.
func (r *Replica) compareCut(m *checkpoint.Manifest) {
	switch {
	case len(m.Cut) < 2 || slices.Min(m.Cut) == slices.Max(m.Cut):
	case r.declared.Cut != nil:
		r.job.Logf(slog.LevelInfo, "each worker goes on where it was, after steps %d to %d", slices.Min(m.Cut), slices.Max(m.Cut))
	default:
		r.job.Logf(slog.LevelWarn, "the checkpoint has %d to %d steps of workers that did not wait for each other: as there are others now, all go on after step %d",
			slices.Min(m.Cut), slices.Max(m.Cut), m.Step)
	}
}

// compare says what in a checkpoint makes this run differ from one that was
// never interrupted.
func (r *Replica) compare(m *checkpoint.Manifest) {
	for _, d := range []struct {
		what      string
		then, now any
	}{
		{"virtual workers", m.Leaves, r.job.leaves},
		{"rows in a batch", m.Batch, r.settings.batch},
		{"seed", m.Seed, r.job.config.seed},
	} {
		if d.then != d.now && r.declared.Sync.Together() { // in other modes bits are never the same
			r.job.Logf(slog.LevelWarn, "the checkpoint was made with %s %v, now it is %v: the bits will be others than without the interruption", d.what, d.then, d.now)
		}
	}
}

// fits says why this program cannot go on from a checkpoint.
func (r *Replica) fits(m *checkpoint.Manifest) error {
	return m.Fits(r.checkpointed(), r.declared.Optimizer)
}

// checkpointed describes the variables as a manifest does.
func (r *Replica) checkpointed() (all []checkpoint.Variable) {
	for _, v := range r.declared.Variables {
		all = append(all, checkpoint.Variable{Name: v.Name, Dtype: string(v.Dtype), Shape: slices.Clone(v.Shape),
			Sparse: v.Sparse != nil, Update: v.Update, Momentum: v.Momentum})
	}
	return all
}

func (r *Replica) newSaver() *saver {
	if r.job.depot == nil || !r.job.IsChief() {
		return nil
	}
	s := &saver{r: r, last: time.Now(), at: r.step}
	if r.declared.Checkpoint == "" {
		s.at = -1
	}
	return s
}

// ask has a checkpoint made at the next step boundary.
func (s *saver) ask(r request) {
	s.mu.Lock()
	over, err := s.result, s.refuses(r)
	if over == nil && err == nil {
		s.asked = append(s.asked, r)
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		r.tell(0, 0, err)
	case over != nil:
		r.tell(over.step, 0, over.err)
	}
}

func (s *saver) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked) > 0
}

// after is called between two steps.
func (s *saver) after(ctx context.Context) error {
	if s == nil {
		return nil
	}
	if err := s.saveDue(ctx); err != nil {
		return err
	}
	return s.rest(ctx)
}

func (s *saver) saveDue(ctx context.Context) error {
	c := &s.r.job.config
	s.due = s.due || s.wanted() || c.ckptSteps > 0 && s.r.step/c.ckptSteps > max(s.at, 0)/c.ckptSteps ||
		c.ckptSecs > 0 && time.Since(s.last) >= time.Duration(c.ckptSecs)*time.Second
	if !s.due || s.r.job.depot.Busy() {
		return nil
	}
	return s.save(ctx)
}

// save has every owner save what it has now or, where workers are not in step,
// at a cut.
func (s *saver) save(ctx context.Context) error {
	r := s.r
	s.due, s.last, s.at = false, time.Now(), r.step
	s.mu.Lock()
	asked := s.asked
	s.asked = nil
	resting := s.hold(asked)
	s.mu.Unlock()
	kind := owner.Passing
	if resting != nil {
		kind = owner.Holding
	}
	cut, err := r.client.Cut(ctx, kind)
	if err != nil {
		return err
	}
	expected := depot.Expected{Number: r.client.Saves(), Owners: r.owning(), Carriers: r.carriers(), Manifest: r.manifest(cut)}
	if resting != nil {
		expected.Leaving = resting.leaving
	}
	if err := r.job.depot.Expect(expected); err != nil {
		return err
	}
	if err := r.client.Save(); err != nil {
		return err
	}
	if len(asked) > 0 {
		step := int(expected.Manifest.Step)
		s.telling.Go(func() { s.tell(asked, resting, step, r.job.depot.Wait(context.Background())) }) // Close ends it
	}
	return nil
}

// owning are the tasks that own something for the time being.
func (r *Replica) owning() (all []cluster.Task) {
	for _, p := range r.declared.Pieces {
		if task := r.declared.Owners[p.Owner]; !slices.Contains(all, task) {
			all = append(all, task)
		}
	}
	return all
}

// carriers are the workers that bring state of their own.
func (r *Replica) carriers() (all []cluster.Task) {
	if len(r.carried) == 0 || !r.declared.Sync.Together() {
		return nil
	}
	for rank := range r.job.NumWorkers() {
		all = append(all, cluster.Task{Role: cluster.Worker, Index: rank})
	}
	return all
}

// manifest is what a checkpoint says of the job. Where workers are not in step it
// is of a cut, else nil: of all that the chief has.
func (r *Replica) manifest(cut []uint64) checkpoint.Manifest {
	j := r.job
	step := r.client.Step()
	if cut != nil {
		step = cut[0]
	}
	return checkpoint.Manifest{
		Job: j.contract.Job, Generation: j.contract.Generation, Step: step, Cut: cut,
		Leaves: j.leaves, Batch: r.settings.batch, Seed: j.config.seed, Model: r.declared.Model,
		Optimizer: r.declared.Optimizer, Variables: r.checkpointed(),
	}
}

// leaveDepot waits until no other task needs anything of this one's folder.
func (j *Job) leaveDepot(ctx context.Context) {
	if j.depot != nil {
		j.depot.Wait(ctx) // what failed was said
	}
}

// hooks of the owner's for checkpoints; nil where there are none.
func (j *Job) saving() func(owner.Snapshot) {
	if j.depot == nil {
		return nil
	}
	return j.depot.Save
}

func (j *Job) restoring() func(context.Context, *owner.Declaration, owner.Piece, owner.Restoring) error {
	if j.depot == nil {
		return nil
	}
	return j.depot.Restore
}

// began notes that this worker has all that it wants of the checkpoint that
// training goes on from.
func (r *Replica) began() {
	if r.declared.Checkpoint != "" && !r.restored {
		r.restored = true
		r.job.depot.Restored()
	}
}
