// Checks a dashboard against Grafana's own schema: what is not in it, and what it requires and is missing.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	content, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var read dashboard.Dashboard
	for _, err := range []error{read.UnmarshalJSONStrict(content), read.Validate()} {
		if err != nil && err.Error() != "" { // an empty list of errors is no nil
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println(len(read.Panels), "panels")
}
