package data

// BatchesConfig describes batches of images.
type BatchesConfig struct {
	Pixels  int // pixels of an image, all channels together
	Classes int
	Scale   Scale
	Batch   int    // images of the global batch, for all workers together
	Seed    uint64 // seed of the job
}

// Batches are batches of images: Epochs choose the images, a Filler fills the
// batches. Any number of goroutines may use them.
type Batches struct {
	epochs *Epochs
	fill   *Filler
	config BatchesConfig
}

// NewBatches checks the configuration.
func NewBatches(images Dataset[Image], c BatchesConfig) (*Batches, error) {
	epochs, err := NewEpochs(EpochsConfig{Samples: images.Len(), Batch: c.Batch, Seed: c.Seed})
	if err != nil {
		return nil, err
	}
	fill, err := NewFiller(images, c.Classes, c.Scale)
	return &Batches{epochs, fill, c}, err
}

// Rows returns the rows [lo, hi) of a step's batch in new memory: pixels, of
// shape (hi-lo, channels, height, width), and one-hot labels, of shape (hi-lo,
// classes). An image of another size is an error.
func (b *Batches) Rows(step, lo, hi int) (x, y []float32, err error) {
	indices := b.epochs.Rows(step, lo, hi, nil)
	x, y = make([]float32, len(indices)*b.config.Pixels), make([]float32, len(indices)*b.config.Classes)
	return x, y, b.fill.Fill(indices, x, y)
}
