// Package imagenet trains an image classifier on pictures such as those of
// ImageNet. The examples resnet and inception only add their networks:
//
//	imagenet.Example{Name: name, Logits: logits, Size: 224}.Main()
//
// The pictures are JPEG or PNG files of any size in one folder for each class,
// or in TFRecord files, or artificial.
package imagenet

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/plx-run/plx/examples/internal/corrupt"
	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
)

// Example describes the network that an example program trains.
type Example struct {
	Size  int                   // default of the flag --size, in pixels
	Flags func(f *flag.FlagSet) // adds the flags of the example's network; nil if the network has no flags
	// Name returns the name of the network that the flags select, or an error
	// that names the invalid flag.
	Name func() (string, error)
	// Logits adds the network's layers to the model. x contains the images and
	// has the shape (batch, 3, size, size).
	Logits func(b *nn.Builder, x *nn.Node, classes int) *nn.Node
}

// Main runs the example program.
func (e Example) Main() {
	s := settings{example: e}
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// settings holds the values of the program's flags.
type settings struct {
	example Example

	size, classes, batch, epochs, steps, every int
	data, validation, trained                  string
	firstLabel                                 int
	synthetic, skip                            bool
	samples                                    int // number of artificial pictures
	rate, decay, smoothing                     float64
	warmUp                                     int // length of the learning rate's warm-up, in epochs
}

// define defines the program's flags on f.
func (s *settings) define(f *flag.FlagSet) {
	if s.example.Flags != nil {
		s.example.Flags(f)
	}
	f.StringVar(&s.data, "data", "", "`folder` with a folder of pictures for each class, or TFRecord files, separated by commas, * for any name")
	f.StringVar(&s.validation, "validation", "", "the same for evaluation, after each epoch")
	f.StringVar(&s.trained, "evaluate", "", "train nothing: classify the pictures of --validation with the checkpoint in this `folder`")
	f.IntVar(&s.classes, "classes", 0, "`number` of classes (default: those of the folder, else 1000)")
	f.IntVar(&s.firstLabel, "first-label", 0, "`label` of the first class in TFRecord files; 1 in those of ImageNet")
	f.BoolVar(&s.skip, "skip-corrupt", false, "skip corrupt pictures, and count them")
	f.BoolVar(&s.synthetic, "synthetic", false, "train on artificial pictures of 10 classes")
	f.IntVar(&s.samples, "samples", 2000, "`number` of artificial pictures")
	f.IntVar(&s.size, "size", s.example.Size, "`pixels` of a side of the squares that pictures are cropped to; their shorter side is resized to 8/7 of it")
	f.IntVar(&s.batch, "batch-size", 32, "`pictures` of one step, for all workers together")
	f.IntVar(&s.epochs, "epochs", 90, "`epochs` to train")
	f.IntVar(&s.steps, "steps", 0, "`steps` to take in place of --epochs")
	f.IntVar(&s.every, "report-every", 10, "`steps` between two lines")
	f.Float64Var(&s.rate, "learning-rate", 0.1, "`rate` for a batch of 256; it is scaled with the batch, and divided by 10 after 30, 60 and 80 epochs")
	f.IntVar(&s.warmUp, "warm-up", 5, "`epochs` in which the rate rises")
	f.Float64Var(&s.decay, "weight-decay", 1e-4, "`part` of each variable that is added to its gradient")
	f.Float64Var(&s.smoothing, "label-smoothing", 0, "`fraction` of each label that is divided among all classes")
}

// check returns an error if the value of a flag is invalid.
func (s *settings) check() error {
	if _, err := s.example.Name(); err != nil {
		return err
	}
	switch {
	case s.trained != "" && s.synthetic == (s.validation != ""):
		return fmt.Errorf("--validation is %q: want pictures to evaluate, or --synthetic and no --validation", s.validation)
	case s.trained == "" && s.synthetic == (s.data != ""):
		return fmt.Errorf("--data is %q: want pictures, or --synthetic and no --data", s.data)
	}
	if !(s.decay >= 0) {
		return fmt.Errorf("--weight-decay is %v: want at least 0", s.decay)
	}
	return cmp.Or(flags.AtLeast("size", s.size, 1), flags.AtLeast("classes", s.classes, 0), flags.AtLeast("batch-size", s.batch, 1),
		flags.AtLeast("epochs", s.epochs, 1), flags.AtLeast("steps", s.steps, 0), flags.AtLeast("report-every", s.every, 1),
		flags.AtLeast("samples", s.samples, 1), flags.AtLeast("warm-up", s.warmUp, 0),
		flags.Rate("learning-rate", s.rate), flags.Fraction("label-smoothing", s.smoothing))
}

// schedule returns a function that maps a step to its learning rate (Goyal et
// al. 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour"). The
// parameter epoch is the number of steps of an epoch.
func (s *settings) schedule(epoch int) func(step int) float64 {
	scaled, warm := s.rate*float64(s.batch)/256, s.warmUp*epoch
	return trainer.WarmUp(warm, func(step int) float64 {
		rate := scaled
		for _, end := range []int{30, 60, 80} {
			if warm+step >= end*epoch {
				rate /= 10
			}
		}
		return rate
	})
}

// train runs on each worker.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	skipped := corrupt.Skipped(job, s.skip)
	if s.trained != "" {
		err := s.evaluateCheckpoint(ctx, job, skipped)
		corrupt.Log(job, skipped)
		return err
	}
	from, err := s.open(job.Seed(), skipped)
	if err != nil {
		return err
	}
	shard, err := s.shard(ctx, job, from)
	if err != nil {
		return err
	}
	net, epoch := network{s.example.Logits, s.size, from.classes, s.smoothing}, from.train.Len()/s.batch
	optimizer := trainer.Momentum(s.rate, 0.9).WithDecay(s.decay).WithSchedule(s.schedule(epoch))
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), net.build), optimizer, trainer.Config{GlobalBatch: s.batch})
	if err != nil {
		return err
	}
	if job.IsChief() {
		name, _ := s.example.Name() // no error: check has already called Name
		fmt.Printf("%s | %d parameters | %d classes | %d pictures\n", name, session.Parameters(), from.classes, from.train.Len())
	}
	begin, end := session.Rows()
	steps, spent, epochs := cmp.Or(s.steps, s.epochs*epoch), newPace(s.batch, s.every), session.Steps()/epoch
	for result, err := range session.Train(ctx, steps, shard.Feed(net.feed)) {
		if err != nil {
			return err
		}
		if speed, due := spent.step(); due && job.IsChief() {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f | rate %.3g | %.1f images/s\n", result.Step, result.Loss, result.Metrics["accuracy"], result.Rate, speed)
		}
		if done := result.Step + 1; from.test != nil && (done/epoch > epochs || done == steps) { // The condition is > and not ==, because a slow worker may skip the last step of an epoch.
			epochs = done / epoch
			score, err := net.evaluate(ctx, job, session, end-begin, data.Map(from.test, s.crop().Center))
			if err != nil {
				return err
			}
			session.SaveIfBest(score)
			spent.resume()
		}
	}
	corrupt.Log(job, skipped)
	return nil
}

// shard returns this worker's share of each batch. It crops and mirrors the
// pictures at random.
func (s *settings) shard(ctx context.Context, job *trainer.Job, from source) (*trainer.DataShard[data.Image], error) {
	if from.train.Len() < s.batch {
		return nil, fmt.Errorf("--batch-size is %d: there are %d pictures", s.batch, from.train.Len())
	}
	epochs, err := data.Augment(from.train, s.batch, job.Seed(), s.crop().Random)
	if err != nil {
		return nil, err
	}
	return trainer.Shard(ctx, job, epochs, s.batch)
}

// pace measures the training speed. It excludes the time of evaluations.
type pace struct {
	batch, every int
	steps        int           // number of steps since the last printed line
	spent        time.Duration // time that the steps since the last printed line took
	begun        time.Time
}

func newPace(batch, every int) *pace { return &pace{batch: batch, every: every, begun: time.Now()} }

// step counts a finished step. Once every p.every steps, due is true and speed
// is the number of images per second since the last printed line.
func (p *pace) step() (speed float64, due bool) {
	p.steps++
	p.spent += time.Since(p.begun)
	p.resume()
	if p.steps < p.every {
		return 0, false
	}
	speed = float64(p.batch*p.steps) / p.spent.Seconds()
	p.steps, p.spent = 0, 0
	return speed, true
}

// resume restarts the clock, so that the time since the last step is not
// counted as training time.
func (p *pace) resume() { p.begun = time.Now() }
