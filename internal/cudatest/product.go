package cudatest

import (
	"encoding/binary"
	"fmt"
)

// blasProduct is struct product of libcublas.c. Matrices lie by columns.
type blasProduct struct {
	Size, TurnA, TurnB, M, N, K, Lda, Ldb, Ldc, Count uint32
	A, B, C, StepA, StepB, StepC, Workspace, Room     uint64
	Alpha, Beta                                       float64
}

// product multiplies matrices as the stand-in of cuBLAS asks for it: each element in
// descending order of k, so that the result is not that of plx's own kernels.
func (m *machine) product(request []byte) int {
	var p blasProduct
	if n, err := binary.Decode(request, binary.LittleEndian, &p); err != nil || n != len(request) {
		return m.faulty(fmt.Errorf("a product of %d bytes: %w", len(request), err))
	}
	m.driver.multiplied()
	if p.Size == 8 {
		return m.faulty(multiply[float64](m, p))
	}
	return m.faulty(multiply[float32](m, p))
}

func multiply[T float32 | float64](m *machine, p blasProduct) error {
	// cuBLAS works in the workspace: what another operation has there is lost.
	for _, at := range []uint64{p.Workspace, p.Workspace + p.Room - 256} {
		if err := m.memory.Fill8(at, 0xa5, 256); err != nil {
			return fmt.Errorf("cuBLAS's workspace: %w", err)
		}
	}
	columnsA, columnsB := p.K, p.N
	if p.TurnA == 1 {
		columnsA = p.M
	}
	if p.TurnB == 1 {
		columnsB = p.K
	}
	size := uint64(p.Size)
	for pair := range uint64(p.Count) {
		a, err := matrix[T](m, p.A+pair*p.StepA*size, p.Lda*columnsA)
		if err != nil {
			return err
		}
		b, err := matrix[T](m, p.B+pair*p.StepB*size, p.Ldb*columnsB)
		if err != nil {
			return err
		}
		if p.Beta != 0 || p.Alpha != 1 || p.Ldc != p.M {
			return fmt.Errorf("a product with alpha %v, beta %v and %d elements between columns of %d", p.Alpha, p.Beta, p.Ldc, p.M)
		}
		result, err := binary.Append(nil, binary.LittleEndian, naive(p, a, b))
		if err == nil {
			err = m.memory.Write(p.C+pair*p.StepC*size, result)
		}
		if err != nil {
			return fmt.Errorf("the result of a product: %w", err)
		}
	}
	return nil
}

func matrix[T float32 | float64](m *machine, at uint64, n uint32) ([]T, error) {
	x := make([]T, n)
	b := make([]byte, binary.Size(x))
	if err := m.memory.Read(at, b); err != nil {
		return nil, fmt.Errorf("an operand of a product: %w", err)
	}
	_, err := binary.Decode(b, binary.LittleEndian, x)
	return x, err
}

func naive[T float32 | float64](p blasProduct, a, b []T) []T {
	strides := func(turned, ld uint32) (row, column uint32) {
		if turned == 1 {
			return ld, 1
		}
		return 1, ld
	}
	rowA, columnA := strides(p.TurnA, p.Lda)
	rowB, columnB := strides(p.TurnB, p.Ldb)
	c := make([]T, p.M*p.N)
	for j := range p.N {
		for i := range p.M {
			var sum T
			for k := p.K; k > 0; k-- {
				sum += T(a[i*rowA+(k-1)*columnA] * b[(k-1)*rowB+j*columnB])
			}
			c[j*p.M+i] = sum
		}
	}
	return c
}
