// What the report's timeline needs of Apache ECharts, and nothing else (README.md says how it is built).
export { init, getInstanceByDom } from "echarts/core";
import { use } from "echarts/core";
import { CustomChart } from "echarts/charts";
import { AxisPointerComponent, DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, MarkLineComponent } from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";

use([
  AxisPointerComponent,
  CanvasRenderer,
  CustomChart,
  DataZoomInsideComponent,
  DataZoomSliderComponent,
  GridComponent,
  MarkLineComponent,
]);
