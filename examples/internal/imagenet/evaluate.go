package imagenet

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
)

// evaluate counts how many images of a test the network classifies correctly, and for how
// many the right class is among the five likeliest. Each worker counts those of its part.
func (n network) evaluate(ctx context.Context, job *trainer.Job, session *trainer.Session, images data.Dataset[data.Image]) error {
	all, of, rank := images.Len(), job.NumWorkers(), job.WorkerID()
	begin, end := all*rank/of, all*(rank+1)/of
	from, to := session.Rows()
	batch := to - from
	batches := (end - begin + batch - 1) / batch
	indices := func(i int) (some []int) {
		for k := begin + i*batch; k < min(begin+(i+1)*batch, end); k++ {
			some = append(some, k)
		}
		return some
	}
	loader := data.NewLoader(ctx, images, 2, batches, indices)
	right := []int64{0, 0} // among the first, among the first five
	for i := range batches {
		some, err := loader.Batch(i)
		if err != nil {
			return err
		}
		feed, err := n.feed(some)
		if err != nil {
			return err
		}
		result, err := session.Evaluate(ctx, feed)
		if err != nil {
			return err
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
		return err
	}
	if job.IsChief() {
		fmt.Printf("evaluation of %d pictures | top-1 %.4f | top-5 %.4f\n", all, float64(right[0])/float64(all), float64(right[1])/float64(all))
	}
	return nil
}

// above is how many classes are likelier than one, or as likely and before it.
func above(logits []float32, label int) (n int) {
	for class, v := range logits {
		if v > logits[label] || v == logits[label] && class < label {
			n++
		}
	}
	return n
}
