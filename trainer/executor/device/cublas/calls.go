package cublas

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/device"
)

// function is a function of cuBLAS.
type function int

// The functions that are called.
const (
	property function = iota
	create
	destroy
	setStream
	setWorkspace
	setMathMode
	multiply32
	multiply64
	multiplyMany32
	multiplyMany64
)

// names are the functions in the library.
var names = [...]string{
	property:       "cublasGetProperty",
	create:         "cublasCreate_v2",
	destroy:        "cublasDestroy_v2",
	setStream:      "cublasSetStream_v2",
	setWorkspace:   "cublasSetWorkspace_v2",
	setMathMode:    "cublasSetMathMode",
	multiply32:     "cublasSgemm_v2",
	multiply64:     "cublasDgemm_v2",
	multiplyMany32: "cublasSgemmStridedBatched",
	multiplyMany64: "cublasDgemmStridedBatched",
}

// calls are the addresses of the functions.
type calls [len(names)]uintptr

// statuses are cuBLAS's names of what its functions return.
var statuses = map[int]string{
	1:  "CUBLAS_STATUS_NOT_INITIALIZED",
	3:  "CUBLAS_STATUS_ALLOC_FAILED",
	7:  "CUBLAS_STATUS_INVALID_VALUE",
	8:  "CUBLAS_STATUS_ARCH_MISMATCH",
	11: "CUBLAS_STATUS_MAPPING_ERROR",
	13: "CUBLAS_STATUS_EXECUTION_FAILED",
	14: "CUBLAS_STATUS_INTERNAL_ERROR",
	15: "CUBLAS_STATUS_NOT_SUPPORTED",
	16: "CUBLAS_STATUS_LICENSE_ERROR",
}

// do calls a function, on the thread that it is on.
//
//go:uintptrescapes
func (c *calls) do(f function, args ...uintptr) error { return checked(f, call(c[f], args)) }

// checked turns a status into an error.
func checked(f function, status int) error {
	if status == 0 {
		return nil
	}
	return &device.Error{Call: names[f], Code: status, Name: statuses[status]}
}

// version is what a library says of itself.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }
