package data

// BatchesConfig says what batches of images are.
type BatchesConfig struct {
	Pixels  int // of an image, all channels together
	Classes int
	Scale   Scale
	Batch   int    // images of the global batch, all workers together
	Seed    uint64 // of the job
}

// Batches are the batches of images that Epochs choose, as a Filler fills
// them. Any number of goroutines may use them.
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

// Rows returns the rows [lo, hi) of a step's batch in memory of their own:
// pixels, of shape (hi-lo, channels, height, width), and labels, one-hot, of
// shape (hi-lo, classes). Images of another size are an error.
func (b *Batches) Rows(step, lo, hi int) (x, y []float32, err error) {
	indices := b.epochs.Rows(step, lo, hi, nil)
	x, y = make([]float32, len(indices)*b.config.Pixels), make([]float32, len(indices)*b.config.Classes)
	return x, y, b.fill.Fill(indices, x, y)
}
