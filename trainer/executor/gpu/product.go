package gpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cublas"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"gorgonia.org/tensor"
)

// ChooseProducts chooses the library for matrix products: cuBLAS, or plx's own
// kernels. For the format of spec see cublas.Choose. A nil Device means the
// CPU, for which ChooseProducts does nothing.
func (d *Device) ChooseProducts(spec string) (err error) {
	if d == nil {
		return nil
	}
	d.Products, err = cublas.Choose(spec, d.GPU)
	return err
}

// workspace returns the number of bytes of scratch memory that cuBLAS needs, 0
// without cuBLAS.
func (d *Device) workspace() int {
	if d.Products.Library == nil {
		return 0
	}
	return d.Products.Workspace()
}

// multiplier returns a cuBLAS handle for stream s, or nil without cuBLAS. The
// handle uses scratch, the scratch memory of the stream's kernels, as its
// workspace.
func (d *Device) multiplier(s device.Stream, scratch device.Pointer) (*cublas.Handle, error) {
	if d.Products.Library == nil {
		return nil, nil
	}
	return d.Products.On(s, scratch)
}

// product returns the cuBLAS call for the matrix product v. operands are the
// addresses of the result and of the matrices A and B. If p.Bias is set, the
// last operand is a vector, and a second launch adds the vector to each row.
func (d *Device) product(v *compile.Value, p kernels.Matrices, operands []uint64) ([]launch, error) {
	double := v.Dtype == tensor.Float64
	all := []launch{{name: "matrix product", product: &cublas.Product{
		Double: double, Count: p.Count, M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB,
		Out: device.Pointer(operands[0]), A: device.Pointer(operands[1]), B: device.Pointer(operands[2])}}}
	if !p.Bias {
		return all, nil
	}
	t := kernels.Float32
	if double {
		t = kernels.Float64
	}
	o, err := kernels.AddBias(t, p.M, p.N, 1)
	if err != nil {
		return nil, err
	}
	added, err := d.launches(o, []uint64{operands[0], operands[0], operands[3]})
	return append(all, added...), err
}

// launches returns the kernel launches of operation o for operands at these
// GPU addresses.
func (d *Device) launches(o kernels.Operation, operands []uint64) (all []launch, err error) {
	for _, from := range o.Launches {
		k, err := d.kernel(from.Module, from.Kernel)
		if err != nil {
			return nil, err
		}
		all = append(all, launch{name: from.Kernel, kernel: k, shape: device.Shape{Grid: from.Grid, Block: from.Block}, params: from.Params(operands...)})
	}
	return all, nil
}

// put starts the launch on the CUDA stream s. h is the stream's cuBLAS handle;
// it is nil if plx does not use cuBLAS.
func (l *launch) put(s device.Stream, h *cublas.Handle) (err error) {
	if l.product != nil {
		err = h.Multiply(l.product)
	} else {
		err = s.Launch(l.kernel, l.shape, l.params)
	}
	if err != nil {
		return fmt.Errorf("kernel %s: %w", l.name, err)
	}
	return nil
}
