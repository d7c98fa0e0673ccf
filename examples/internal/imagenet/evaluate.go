package imagenet

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
)

// evaluator is a training session or a checkpoint, which can evaluate a batch.
type evaluator interface {
	Evaluate(ctx context.Context, feed trainer.Feed) (trainer.Result, error)
}

// evaluate returns the fraction of images that the network classifies
// correctly. The chief (worker 0) also prints the top-5 accuracy. Each worker
// classifies its own share of the images; batch is the number of images that
// it classifies at once.
func (n network) evaluate(ctx context.Context, job *trainer.Job, trained evaluator, batch int, images data.Dataset[data.Image]) (float64, error) {
	all, of, rank := images.Len(), job.NumWorkers(), job.WorkerID()
	begin, end := all*rank/of, all*(rank+1)/of
	batches := (end - begin + batch - 1) / batch
	indices := func(i int) (some []int) {
		for k := begin + i*batch; k < min(begin+(i+1)*batch, end); k++ {
			some = append(some, k)
		}
		return some
	}
	loader := data.NewLoader(ctx, images, 2, batches, indices)
	right := []int64{0, 0} // number of images whose class has the highest logit, and number of images whose class has one of the five highest
	for i := range batches {
		some, err := loader.Batch(i)
		if err != nil {
			return 0, err
		}
		feed, err := n.feed(some)
		if err != nil {
			return 0, err
		}
		result, err := trained.Evaluate(ctx, feed)
		if err != nil {
			return 0, err
		}
		logits := result.Fetches["logits"][0].Data().([]float32)
		for row, image := range some {
			place := above(logits[row*n.classes:(row+1)*n.classes], image.Label)
			for k, most := range []int{1, 5} {
				if place < most {
					right[k]++
				}
			}
		}
	}
	if err := job.AllReduce(ctx, right); err != nil {
		return 0, err
	}
	first := float64(right[0]) / float64(all)
	if job.IsChief() {
		fmt.Printf("evaluation of %d pictures | top-1 %.4f | top-5 %.4f\n", all, first, float64(right[1])/float64(all))
	}
	return first, nil
}

// evaluateCheckpoint evaluates the test pictures with the variables of a
// checkpoint.
func (s *settings) evaluateCheckpoint(ctx context.Context, job *trainer.Job, skipped *data.Skipped) error {
	test, classes, err := s.openTest(job.Seed(), skipped)
	if err != nil {
		return err
	}
	net, batch := network{s.example.Logits, s.size, classes, s.smoothing}, max(1, s.batch/job.NumWorkers())
	c, err := trainer.OpenCheckpoint(ctx, s.trained, nn.Build(job.Seed(), net.build), trainer.Config{GlobalBatch: batch})
	if err != nil {
		return fmt.Errorf("--evaluate: %w", err)
	}
	defer c.Close() // the checkpoint was only read, so an error of Close does not matter
	if job.IsChief() {
		name, _ := s.example.Name() // no error: check has already called Name
		fmt.Printf("%s | checkpoint of step %d | %d classes\n", name, c.Step(), classes)
	}
	_, err = net.evaluate(ctx, job, c, batch, data.Map(test, s.crop().Center))
	return err
}

// above returns how many classes rank before the class label: those with a
// higher logit, or with an equal logit and a lower index.
func above(logits []float32, label int) (n int) {
	for class, v := range logits {
		if v > logits[label] || v == logits[label] && class < label {
			n++
		}
	}
	return n
}
