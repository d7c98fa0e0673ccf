// Command inception trains Inception-v3 to classify pictures, on every worker
// that plx starts:
//
//	plx launch --hosts resources.txt ./examples/inception --data /data/train --validation /data/val
//
// It has the same flags as the example resnet, except for --depth.
package main

import (
	"github.com/plx-run/plx/examples/internal/imagenet"
)

func main() { example().Main() }

func example() imagenet.Example {
	return imagenet.Example{Size: 299, Name: func() (string, error) { return "inception-v3", nil }, Logits: network{dropout: 0.5}.logits}
}
