"""Sweeps: a scenario in many variants, each with many seeds, run as Spark jobs.

The flow, one module after the other:

    spec       what to run: checked variants, seeds, share and cost
      grid       the variants: every combination of the varied settings
      costs      the order of the variants, cheapest first
    sweep      the entry points: `sweep` runs the whole grid, `plan` what a search asks for
      search     which runs are needed to find the cheapest variants that are good enough
      choice     the answer: those variants, the recommended one, and how certain it is
    executor   runs whatever is not finished yet
      archive    the package as a zip, for executors on other machines
      spark_job  one Spark job that runs a list of simulations
      store      the finished runs, on disk
"""
