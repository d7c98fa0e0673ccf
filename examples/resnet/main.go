// Command resnet trains a residual network to classify pictures, on every
// worker that plx starts:
//
//	plx launch --hosts resources.txt ./examples/resnet --depth 50 --data /data/train --validation /data/val
//
// Each of the two folders has one subfolder for each class, with JPEG or PNG
// pictures of any size. A pattern such as '/data/train-*' instead of a folder
// names TFRecord files. With --synthetic the program generates artificial
// pictures.
package main

import (
	"flag"
	"fmt"

	"github.com/plx-run/plx/examples/internal/imagenet"
)

func main() {
	var n network
	imagenet.Example{Size: 224, Flags: n.define, Name: n.name, Logits: n.logits}.Main()
}

func (n *network) define(f *flag.FlagSet) {
	f.IntVar(&n.depth, "depth", 50, "`layers`: 18, 34, 50, 101 or 152")
}

func (n *network) name() (string, error) {
	if _, known := depths[n.depth]; !known {
		return "", fmt.Errorf("--depth is %d: want 18, 34, 50, 101 or 152", n.depth)
	}
	return fmt.Sprintf("resnet-%d", n.depth), nil
}
